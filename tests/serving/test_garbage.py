"""What the collector of a worker leaves alone."""

import gc

from service.serving.garbage import NEW_OBJECTS
from tests.serving.conftest import Serving


def test_what_is_there_at_the_start_is_not_looked_through_again(serving: Serving) -> None:
    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] == NEW_OBJECTS
