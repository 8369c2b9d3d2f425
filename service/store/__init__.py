"""All state, in Redis: one noun a file, one Lua script a transition. Speaks protocol values and verdicts, no HTTP."""
