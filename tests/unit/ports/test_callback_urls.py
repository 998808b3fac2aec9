"""Callbacks go to public https addresses, however the text of another one is written."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import CallbackUrlInvalid
from dagmaster.ports.callback_urls import is_public, parse_callback_url

REFUSED = (
    # Not https, or nothing.
    *(
        "",
        "x",
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com/x",
    ),
    *(
        "https://",
        "https:///x",
        "https:example.com",
        "javascript:alert(1)",
        "data:text/plain,x",
        "HTTP://example.com",
    ),
    # This machine and its numbers.
    *(
        "https://localhost/",
        "https://LOCALHOST/",
        "https://a.localhost/",
        "https://127.0.0.1/",
        "https://127.1/",
    ),
    *("https://0/", "https://0.0.0.0/", "https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/"),
    *(
        "https://0177.0.0.1/",
        "https://017700000001/",
        "https://127.0.0.1./",
        "https://[::1]/",
        "https://[::]/",
    ),
    *("https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://1.2.3/"),
    *("https://[0:0:0:0:0:ffff:127.0.0.1]/", "https://[::ffff:0:127.0.0.1]/", "https://127.0.0.1.:443/"),
    # Private, link-local, shared, metadata, documentation, multicast, broadcast.
    *(
        "https://10.0.0.1/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data/",
    ),
    *("https://100.64.0.1/", "https://100.100.100.200/", "https://168.63.129.16/", "https://192.0.0.192/"),
    *("https://192.0.2.1/", "https://198.51.100.1/", "https://203.0.113.1/", "https://198.18.0.1/"),
    *("https://224.0.0.1/", "https://239.255.255.255/", "https://255.255.255.255/", "https://240.0.0.1/"),
    *("https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fc00::1]/", "https://[fd00:ec2::254]/"),
    *("https://[ff02::1]/", "https://[2001:db8::1]/", "https://[fec0::1]/", "https://[100::1]/"),
    # What is translated into another address: NAT64, 6to4, Teredo.
    *("https://[64:ff9b::7f00:1]/", "https://[64:ff9b::808:808]/", "https://[64:ff9b:1::a00:1]/"),
    *(
        "https://[2002:7f00:1::]/",
        "https://[2002:808:808::1]/",
        "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    ),
    # Names that are not public, or are written so that programs disagree.
    *(
        "https://metadata/",
        "https://metadata.google.internal/",
        "https://db.local/",
        "https://intranet/",
        "https://x.corp/",
    ),
    *(
        "https://user@example.com/",
        "https://user:pw@example.com/",
        "https://example.com@127.0.0.1/",
        "https://@example.com/",
    ),
    *(
        "https://example.com\\@127.0.0.1/",
        "https://example.com\\.evil/",
        "https://example.com/#x",
        "https://example.com/x#",
    ),
    *("https://example.com./", "https://example..com/", "https://-x.example.com/", "https://exa mple.com/"),
    *(
        "https://example.com/\r\nHost: x",
        "https://example.com/\tx",
        "https://example.com/\x00",
        " https://example.com/",
    ),
    *(
        "https://ex\u00e4mple.com/",
        "https://127\u30020\u30020\u30021/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://\u24db\u24de\u24d2alhost/",
    ),
    *(
        "https://%31%32%37.0.0.1/",
        "https://exam%70le.com/",
        "https://example.com:0/",
        "https://example.com:/",
    ),
    *(
        "https://example.com:65536/",
        "https://example.com:x/",
        "https://[::1/",
        "https://example.123/",
        "https://::1/",
    ),
    *(f"https://{'a' * 64}.com/", f"https://{'a.' * 130}com/", f"https://example.com/{'x' * 512}"),
)


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_is_not_public_https_is_refused(url):
    with pytest.raises(CallbackUrlInvalid):
        parse_callback_url(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "endpoint"),
    [
        ("https://example.com", "example.com", 443, "/", "https://example.com"),
        ("https://Example.COM:443/a?b=c", "example.com", 443, "/a?b=c", "https://example.com"),
        ("https://a-b.example.com:8443/x", "a-b.example.com", 8443, "/x", "https://a-b.example.com:8443"),
        ("https://xn--exmple-cua.com/", "xn--exmple-cua.com", 443, "/", "https://xn--exmple-cua.com"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/", "https://8.8.8.8"),
        ("https://[2606:4700::1111]/", "2606:4700::1111", 443, "/", "https://[2606:4700::1111]"),
    ],
)
def test_a_public_address_is_taken_apart(url, host, port, target, endpoint):
    address = parse_callback_url(url)
    assert (address.host, address.port, address.target, address.endpoint) == (host, port, target, endpoint)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:80/", "http://localhost:9000/x", "https://[::1]:1/", "http://127.0.0.2:1/"]
)
def test_this_machine_is_an_address_where_that_is_allowed(url):
    parse_callback_url(url, allows_loopback=True)


@pytest.mark.parametrize(
    "url", ["http://example.com/", "http://10.0.0.1/", "https://192.168.0.1/", "https://2130706433/"]
)
def test_what_is_allowed_there_is_this_machine_alone(url):
    with pytest.raises(CallbackUrlInvalid):
        parse_callback_url(url, allows_loopback=True)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_any_form_of_ipv6_is_refused(address):
    number = int(address)
    forms = [f"::ffff:{address}", f"::{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}"]
    forms += [
        f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1",
        f"64:ff9b:1::{number >> 16:x}:{number & 0xFFFF:x}",
    ]
    assert not any(is_public(ipaddress.ip_address(form)) for form in forms)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_python_takes_for_private_is_never_public(address):
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert not is_public(address)


@given(st.text(max_size=80))
def test_a_text_is_an_address_or_refused_with_our_error(text):
    for url in (text, f"https://{text}", f"https://example.com{text}"):
        try:
            address = parse_callback_url(url)
        except CallbackUrlInvalid:
            continue
        assert address.is_secure
        assert address.host.isascii()
