"""The workspaces of `keep`, for what is said of a candidate that waits."""

from tests.plugins.review.test_keep import built, here, paused, say  # noqa: F401
