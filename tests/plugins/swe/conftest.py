"""The project with a bug that the tests of swe share: made once in a session, and not once for each
of their files."""

from tests.plugins.swe.swe_project import _project, project

__all__ = ["_project", "project"]
