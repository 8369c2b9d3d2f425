"""Python imports this at its start where PYTHONPATH leads here: what time it is is then wrong by WRONG_BY_SECONDS.

How long something takes stays right, as on a machine whose clock was set wrong.
"""

import datetime
import os
import time

_SECONDS = float(os.environ["WRONG_BY_SECONDS"])
_NANOSECONDS = round(_SECONDS * 1e9)
_time, _time_ns, _gmtime, _localtime = time.time, time.time_ns, time.gmtime, time.localtime
_datetime = datetime.datetime


class _AnyDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _datetime)


class _WrongDatetime(_datetime, metaclass=_AnyDatetime):
    @classmethod
    def now(cls, tz=None):  # type: ignore[no-untyped-def]
        return _datetime.now(tz) + datetime.timedelta(seconds=_SECONDS)

    @classmethod
    def utcnow(cls):  # type: ignore[no-untyped-def]
        return _datetime.utcnow() + datetime.timedelta(seconds=_SECONDS)


time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + _NANOSECONDS
time.gmtime = lambda seconds=None: _gmtime(time.time() if seconds is None else seconds)
time.localtime = lambda seconds=None: _localtime(time.time() if seconds is None else seconds)
datetime.datetime = _WrongDatetime  # type: ignore[misc]
