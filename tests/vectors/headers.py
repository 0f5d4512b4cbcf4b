"""Headers as bytes: docs/spec/container.md, 6."""

from tests.vectors.files import invalid, store, valid

HIGHEST = str(2**1024 - 2**970 - 1)
LOWEST_REFUSED = str(2**1024 - 2**970)


def make() -> None:
    good = {
        "object": ("A name and a value.", b'{"name":"story"}'),
        "white space": ("Around and between.", b' { "a" : [ 1 , 2 ] } \n'),
        "null": ("A header whose value is null.", b"null"),
        "empty object": ("No names.", b"{}"),
        "number": ("One digit.", b"1"),
        "array": ("Of one number.", b"[1]"),
        "short text": ("One letter.", b'"a"'),
        "text": ("No object.", '"Größe ☃"'.encode()),
        "escapes": ("A pair of surrogates, and a slash.", b'"\\ud83d\\ude00\\/\\u0000"'),
        "integer beyond 2^53": ("2^53 + 1.", b"9007199254740993"),
        "integer of 64 bits": ("2^64.", b"18446744073709551616"),
        "largest integer": ("Its nearest double is finite.", HIGHEST.encode()),
        "largest double": ("1.7976931348623157e308.", b"1.7976931348623157e308"),
        "small number": ("Its nearest double is 0.", b"1e-400"),
        "negative zero": ("-0.", b"-0"),
        "names that differ in case": ("They are two.", b'{"a":1,"A":2}'),
        "name in two objects": ("Each has it once.", b'{"a":{"a":1},"b":[{"a":2}]}'),
        "many digits in a string": ("No number.", b'"' + b"9" * 400 + b'"'),
        "100 levels": ("The most.", b"[" * 50 + b'{"a":' * 50 + b"1" + b"}" * 50 + b"]" * 50),
        "brackets in a string": ("No levels.", b'"' + b"[" * 200 + b'"'),
        "many arrays in one": ("Two levels.", b"[" + b",".join([b"[]"] * 200) + b"]"),
    }
    bad = {
        "empty": ("No bytes.", b""),
        "byte order mark": ("In front.", b"\xef\xbb\xbf{}"),
        "not UTF-8": ("A lone ff.", b'"\xff"'),
        "surrogate in UTF-8": ("ed a0 80.", b'"\xed\xa0\x80"'),
        "UTF-16": ("A digit in UTF-16.", "1".encode("utf-16-le")),
        "two values": ("An object after an object.", b"{}{}"),
        "trailing comma": ("In an array.", b"[1,]"),
        "comment": ("In an object.", b"{/**/}"),
        "single quotes": ("No JSON.", b"{'a':1}"),
        "leading zero": ("01.", b"01"),
        "control character": ("U+0001, not escaped.", b'"\x01"'),
        "NaN": ("No number of JSON.", b"NaN"),
        "infinity": ("No number of JSON.", b"-Infinity"),
        "name twice": ("With one value.", b'{"a":1,"a":1}'),
        "name twice, escaped": ("a and \\u0061.", b'{"a":1,"\\u0061":1}'),
        "name twice, within": ("In an inner object.", b'[{"b":{"a":1,"a":2}}]'),
        "integer too large": ("Its nearest double is infinite.", LOWEST_REFUSED.encode()),
        "negative integer too large": ("Likewise.", b"-" + LOWEST_REFUSED.encode()),
        "integer of 400 digits": ("In an object.", b'{"a":' + b"1" * 400 + b"}"),
        "integer of 5,000 digits": ("In an array.", b"[" + b"1" * 5000 + b"]"),
        "number too large": ("1e400.", b"1e400"),
        "number too large, negative": ("In an array.", b"[-1.8e308]"),
        "high surrogate alone": ("Escaped.", b'"\\ud800"'),
        "low surrogate alone": ("Escaped.", b'"a\\udc00b"'),
        "surrogates exchanged": ("Low and high.", b'"\\ude00\\ud83d"'),
        "surrogate in a name": ("Escaped.", b'{"\\ud800":1}'),
        "101 levels": ("Of arrays.", b"[" * 101 + b"]" * 101),
        "101 levels of objects": ("The innermost is empty.", b'{"a":' * 100 + b"{}" + b"}" * 100),
    }
    store(
        "headers",
        "docs/spec/container.md, 6. `header` is the plaintext of a header.",
        [
            *(valid(name, comment, header=data) for name, (comment, data) in good.items()),
            *(invalid(name, comment, "invalid", header=data)
              for name, (comment, data) in bad.items()),
        ],
    )  # fmt: skip
