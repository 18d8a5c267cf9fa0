"""What programs, drivers and schedulers wrote, and what it says of the cause.

``reader`` turns text into lines and events, ``story`` puts the events of all files into one order and tells roots from
consequences, ``causes/`` holds what is known of each domain, ``verdict`` weighs it.  Signatures and failures are rows.
"""
