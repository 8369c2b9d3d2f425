"""The garbage collector's thresholds in a worker."""

import gc

from service.serving.gc_tuning import NEW_OBJECTS
from tests.serving.conftest import RunningServer
from tests.support.waiting import wait_until


def test_what_is_there_at_the_start_is_not_looked_through_again(server: RunningServer) -> None:
    wait_until(lambda: gc.get_threshold()[0] == NEW_OBJECTS, "the end of the start")
    assert gc.get_freeze_count() > 10_000
