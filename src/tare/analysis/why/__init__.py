"""Why a container is slower: causes that were tried, and its layers one by one."""
