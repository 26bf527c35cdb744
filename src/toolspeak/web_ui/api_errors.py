"""Errors of the API, as its clients read them."""

from __future__ import annotations

from toolspeak.data.values import quick
from toolspeak.errors import ConfigurationError, FormatError, JournalError, RunError, ToolspeakError


class ApiFailure(Exception):
    """An answer that is an error. `code` is for programs, `by` is who was faster, `retry_after` is in seconds."""

    def __init__(self, status: int, code: str, message: str, *, by: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(ErrorDetail(code, message, by))
        self.retry_after = retry_after


@quick()
class ErrorDetail:
    """What went wrong, for programs (`code`) and for people (`message`). `by`: who decided before."""

    code: str
    message: str
    by: str = ""


@quick()
class ErrorBody:
    """The body of an answer with an error."""

    error: ErrorDetail


def failure_for(error: ToolspeakError) -> ApiFailure:
    """The answer for an error of toolspeak."""
    match error:
        case RunError():
            return ApiFailure(409, "conflict", str(error))
        case ConfigurationError() | FormatError():
            return ApiFailure(400, "bad_request", str(error))
        case JournalError():
            return ApiFailure(503, "journal", str(error), retry_after=1.0)
        case _:
            return ApiFailure(500, "failed", str(error))
