"""What is said to be done about an error: words that each have one meaning, and who may say which of them.

Who meets an error tries the same again, does it another way, leaves it out, or goes on all the same.  Who manages some
work begins it again.  Some errors were to be met.
"""

from __future__ import annotations

import re

_SPENT = r"(?! (?:are|were|limit|count|exhaust\w*|exceeded|left|reached))"
# the same again
_TRIES = (
    rf"\bretry|(?<!\bmax )(?<!\bno )(?<!\bmore )\bretries\b{_SPENT}|\bAwaitingRetry\b"
    r"|\btry(?:ing)? (?:again|the next|another|with|a |port|in|mirror)|\btrying (?!to\b)\w"
    r"|\b(?:run|attempt\w*|start\w*|tried?) (?:\w+ ){0,3}again\b|\bagain in \d|\battempt #?\d{1,3}\b"
    r"|\bnext (?:attempt|one|card|node|host|device|gpu)\b|\bnext: \S"
)
# another way, and what is used where there is no GPU
_FALLS_BACK = r"\bfall(?:ing|s)? ?back\b|\bfell back\b|\bfallback\b"
_OTHERWISE = rf"{_FALLS_BACK}|\binstead\b|\bswitch(?:ed|ing) to\b"
_WITHOUT_GPU = (
    r"\bus(?:es|ing) (?:numpy|python|pytorch|triton|eager)\b|\b(?:using|on) (?:the )?cpu\b|\bdevice: ?cpu\b"
    r"|\b(?:staging|staged|copying|copied|going|sent) (?:through|via|over|by) the (?:host|cpu)\b"
)
_LEAVES_OUT = r"\bskip(?:ped|ping)?\b|\bpruned\b|\bset aside\b|\bleft out\b|(?<!exception )\bignor(?:ed|ing)\b"
_GOES_ON = r"\bcontinu(?:e|es|ing)\b|\bgo(?:es|ing)? on\b|\bwent on\b"
_WAITS = (
    r"\bwaiting (?:for|until)\b|\bnot (?:up|ready) yet\b|\bsleep(?:ing|s)? (?:for )?\d"
    r"|\b(?:is )?(?:taken|busy|in use),? .{0,20}\bus(?:es|ing)\b"
)
# it was to be met
_AWAITS = r"\b(?:as|was) expected\b|\bexpected (?:\w+ )?(?:error|failure|exception|to fail)|\bsimulated\b|\binjected\b"
# it was met, and something was changed or allowed for it
_HANDLES = (
    r"\bcaught\b|\bhandled\b|\brecover(?:ed|ing)\b|\bsurvived\b|\bdisabled\b|\breduc(?:ed|ing)\b|\bhalv(?:ed|ing)\b"
    r"|(?<!\bbe )\brestart(?:ed|ing)\b"
    r"|(?<!not )\b(?:allowed|permitted|tolerated)\b(?: to fail|.{0,20}\bfailures?\b)|(?<!\d )\bmay fail\b"
    r"|\bfail(?:ed|ures?)\b.{0,30}(?<!not )(?<!than )\b(?:allowed|permitted|tolerated)\b"
    r"|\b(?:sampled|treated|counted|taken|reported|recorded) as\b|\bassum(?:ed|ing)\b|\bdefault(?:s|ing)? to\b"
)
# who manages some work begins it again
_BEGINS_AGAIN = (
    r"(?<!\bnot )(?<!\bnot be )(?<!\bnever be )(?<!\bno )(?<!\bwithout )"
    r"\b(?:re-?(?:tr(?:y|ied|ies|ying)|start|run|queue|submit|launch|execut|schedul|spawn|cover)\w*"
    r"|again|once more|anew|afresh|another (?:go|try|attempt|chance|node|card|gpu|host|life)"
    rf"|back (?:in)?to the queue)\b{_SPENT}|\bspawned: "
)


def _any(*meanings: str) -> re.Pattern[str]:
    return re.compile(f"(?i){'|'.join(meanings)}")


MET = _any(_TRIES, _OTHERWISE, _WITHOUT_GPU, _LEAVES_OUT, _GOES_ON, _AWAITS, _HANDLES)
"""What a program says of an error that it handles."""
TRIES = _any(_TRIES, _OTHERWISE, _LEAVES_OUT)
"""What it says just behind a traceback that it printed itself."""
OVERCOME = _any(_WAITS, _TRIES, _OTHERWISE)
"""What it says behind an error that is no end yet."""
STEPS_OVER = _any(_LEAVES_OUT, _GOES_ON, _FALLS_BACK, r"\bretrying\b")
"""What the line of an error says itself where its process goes on at once."""
AWAITED = _any(
    _AWAITS, r"\b(?:child|subprocess|other process)(?:'s)? (?:said|says|wrote|printed|output|stdout|stderr)\b"
)
"""What is said of an error that was to be met, by another process too."""
AGAIN = _any(_BEGINS_AGAIN)
"""What who manages some work says of a part that it begins again."""
STARTED = _any(_BEGINS_AGAIN, r"^'[^']{1,80}' with pid \d|\bBooting worker\b")
"""The same as a supervisor says it, and the first words of the process that it started."""
RESOLVED = _any(
    r"(?<!\bnot )(?<!\bnever )(?<!\bnot be )(?<!\bnot yet )\b(?:resolved|re-?connected|re-?established|restored"
    r"|reachable again|back (?:online|up|again)|resum(?:ed|es|ing))\b"
)
"""What who lost something says when it is there again."""
