"""From a spec to a lock: the choice that the facts allow, then closures of wheels and Debian packages."""
