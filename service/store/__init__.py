"""The state of the service, kept in Redis: one file for each noun, one Lua script for each change of state.

Methods take protocol values and return protocol values or verdicts. This package knows no HTTP.
"""
