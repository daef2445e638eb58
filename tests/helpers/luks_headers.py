# SPDX-License-Identifier: Apache-2.0
"""What cryptsetup 2.6.1 has printed of LUKS2 headers, whitespace squeezed."""

import json

from cinder_localclone.core.formats import luks_binary
from cinder_localclone.core.formats import luks_ending

#: Of a new volume.
PLAIN = ''.join('''\
{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":
4000,"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"258048","e
ncryption":"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha
256","iterations":1000,"salt":"7q3U5xRE5B5jjsfL7OA0P8o5RwuxwfOgLz6tKMn8hZI="}}
},"tokens":{"0":{"type":"localclone","keyslots":["0"],"key":"0f1e2d3c-0000-400
0-8000-000000000001","format":"hex","shared":false,"role":"volume"}},"segments
":{"0":{"type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","en
cryption":"aes-xts-plain64","sector_size":512}},"digests":{"0":{"type":"pbkdf2
","keyslots":["0"],"segments":["0"],"hash":"sha256","iterations":1000,"salt":"
ssnc+LoX7agwIN3UJX7b/31g/+0yaUuEQANsECV4qX4=","digest":"BPJglAab13tm1GWItDU1ha
NVvREb+E1u3gHhdO1VjTM="}},"config":{"json_size":"12288","keyslots_size":"16744
448"}}'''.split('\n'))

#: A second key was added; the first one is not dropped yet.
ROTATING = ''.join('''\
{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":
4000,"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"258048","e
ncryption":"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha
256","iterations":1000,"salt":"7q3U5xRE5B5jjsfL7OA0P8o5RwuxwfOgLz6tKMn8hZI="}}
,"1":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":4000,"hash":
"sha256"},"area":{"type":"raw","offset":"290816","size":"258048","encryption":
"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha256","itera
tions":1000,"salt":"QEeOFp3uveOP5CVWtmwjQuKztsOoRsftI6q9wyacYco="}}},"tokens":
{"0":{"type":"localclone","keyslots":["0"],"key":"0f1e2d3c-0000-4000-8000-0000
00000001","format":"hex","shared":false,"role":"volume"},"1":{"type":"localclo
ne","keyslots":["1"],"key":"0f1e2d3c-0000-4000-8000-000000000002","format":"ra
w","shared":false,"role":"volume"}},"segments":{"0":{"type":"crypt","offset":"
16777216","size":"dynamic","iv_tweak":"0","encryption":"aes-xts-plain64","sect
or_size":512}},"digests":{"0":{"type":"pbkdf2","keyslots":["0","1"],"segments"
:["0"],"hash":"sha256","iterations":1000,"salt":"ssnc+LoX7agwIN3UJX7b/31g/+0ya
UuEQANsECV4qX4=","digest":"BPJglAab13tm1GWItDU1haNVvREb+E1u3gHhdO1VjTM="}},"co
nfig":{"json_size":"12288","keyslots_size":"16744448"}}'''.split('\n'))

#: After "reencrypt --init-only --resilience journal --key-size 256".
STARTED = ''.join('''\
{"keyslots":{"1":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":
4000,"hash":"sha256"},"area":{"type":"raw","offset":"290816","size":"258048","
encryption":"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sh
a256","iterations":1000,"salt":"QEeOFp3uveOP5CVWtmwjQuKztsOoRsftI6q9wyacYco="}
},"0":{"type":"luks2","key_size":32,"af":{"type":"luks1","stripes":4000,"hash"
:"sha256"},"area":{"type":"raw","offset":"32768","size":"131072","encryption":
"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha256","itera
tions":1000,"salt":"4pMwqouRTp06G8C1P5oOYuZYDGzDDiKDpQazYHL552Q="}},"2":{"area
":{"offset":"548864","size":"16228352","type":"journal"},"type":"reencrypt","k
ey_size":1,"mode":"reencrypt","direction":"forward","priority":0}},"tokens":{"
1":{"type":"localclone","keyslots":["1","0"],"key":"0f1e2d3c-0000-4000-8000-00
0000000002","format":"raw","shared":false,"role":"volume"}},"segments":{"0":{"
type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","encryption"
:"aes-xts-plain64","sector_size":512},"1":{"type":"crypt","offset":"16777216",
"size":"dynamic","iv_tweak":"0","encryption":"aes-xts-plain64","sector_size":5
12,"flags":["backup-previous"]},"2":{"type":"crypt","offset":"16777216","size"
:"dynamic","iv_tweak":"0","encryption":"aes-xts-plain64","sector_size":512,"fl
ags":["backup-final"]}},"digests":{"0":{"type":"pbkdf2","keyslots":["1"],"segm
ents":["0","1"],"hash":"sha256","iterations":1000,"salt":"ssnc+LoX7agwIN3UJX7b
/31g/+0yaUuEQANsECV4qX4=","digest":"BPJglAab13tm1GWItDU1haNVvREb+E1u3gHhdO1VjT
M="},"1":{"type":"pbkdf2","keyslots":["0"],"segments":["2"],"hash":"sha256","i
terations":1000,"salt":"EM0Dz7xQsDJVbur+rytk1CZdbu4fcf+blxc0cFGYsHU=","digest"
:"frK59wS/QvrTHCHfsVFoyiMm5bbDEdAbIvzu0OxI8Zc="},"2":{"type":"pbkdf2","keyslot
s":["2"],"segments":[],"hash":"sha256","iterations":1000,"salt":"ZOCiFsVtxIvCL
/RfNNdR7ey6+VqY1JqKTT3CzKw5qdA=","digest":"Sr/+zN8YxeDjM4tv6gSmWwYwiowfZdgoq/H
bT9aa6Sc="}},"config":{"json_size":"12288","keyslots_size":"16744448","require
ments":{"mandatory":["online-reencrypt-v2"]}}}'''.split('\n'))

#: A re-encryption with --resilience checksum --hotzone-size 32M, killed in
#: the middle of a hot zone; as it was while it ran.
KILLED = ''.join('''\
{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":
4000,"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"258048","e
ncryption":"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha
256","iterations":1000,"salt":"qBO/bkoVbyWs6ZPUgfKRMr9M0iAdhZfSlVjBU1lQBmk="}}
,"1":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":4000,"hash":
"sha256"},"area":{"type":"raw","offset":"290816","size":"258048","encryption":
"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha256","itera
tions":1000,"salt":"1duqaa84aq3yrw1dWV2h/zM4bw5UA109TiQtg7TgK7k="}},"2":{"area
":{"offset":"548864","size":"16228352","type":"checksum","hash":"sha256","sect
or_size":512},"type":"reencrypt","key_size":1,"mode":"reencrypt","direction":"
forward","priority":0}},"tokens":{"0":{"type":"localclone","keyslots":["0","1"
],"key":"0f1e2d3c-0000-4000-8000-000000000001","format":"hex","shared":false,"
role":"volume","slot":"","replaces":""}},"segments":{"0":{"type":"crypt","offs
et":"16777216","size":"503316480","iv_tweak":"0","encryption":"aes-xts-plain64
","sector_size":512},"1":{"type":"crypt","offset":"520093696","size":"33554432
","iv_tweak":"983040","encryption":"aes-xts-plain64","sector_size":512,"flags"
:["in-reencryption"]},"2":{"type":"crypt","offset":"553648128","size":"5200936
96","iv_tweak":"1048576","encryption":"aes-xts-plain64","sector_size":512},"3"
:{"type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","encrypti
on":"aes-xts-plain64","sector_size":512,"flags":["backup-previous"]},"4":{"typ
e":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","encryption":"a
es-xts-plain64","sector_size":512,"flags":["backup-final"]}},"digests":{"0":{"
type":"pbkdf2","keyslots":["0"],"segments":["1","2","3"],"hash":"sha256","iter
ations":1000,"salt":"7MTH/u+1lThtwHvMReI1SRLzIZ23jOturj7joTGAUqc=","digest":"s
4v8N8osw19pZuPCGAISIPL106pdgNisBz+z9BictAU="},"1":{"type":"pbkdf2","keyslots":
["1"],"segments":["1","0","4"],"hash":"sha256","iterations":1000,"salt":"Btw0d
1yKlHFmL6ERp7blAotcpY0D8W0Lzm2ikZ3YpR8=","digest":"+r/N6C3ztZXm1pSy9MazxTx+3ec
G7LY2AxZIQEHIYI4="},"2":{"type":"pbkdf2","keyslots":["2"],"segments":[],"hash"
:"sha256","iterations":1000,"salt":"AYFzgepyPF280m/Bl5GNgpN8WHo39KgkO/2bkEp0Pj
8=","digest":"tl+6a7zlhyHygOhNzFmyS8Rv0W9AkZJ0L4zGr8UnSds="}},"config":{"json_
size":"12288","keyslots_size":"16744448","requirements":{"mandatory":["online-
reencrypt-v2"]}}}'''.split('\n'))

#: The same one, recovered by opening it, run on, and paused by SIGTERM.
PAUSED = ''.join('''\
{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":
4000,"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"258048","e
ncryption":"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha
256","iterations":1000,"salt":"qBO/bkoVbyWs6ZPUgfKRMr9M0iAdhZfSlVjBU1lQBmk="}}
,"1":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":4000,"hash":
"sha256"},"area":{"type":"raw","offset":"290816","size":"258048","encryption":
"aes-xts-plain64","key_size":64},"kdf":{"type":"pbkdf2","hash":"sha256","itera
tions":1000,"salt":"1duqaa84aq3yrw1dWV2h/zM4bw5UA109TiQtg7TgK7k="}},"2":{"area
":{"offset":"548864","size":"16228352","type":"checksum","hash":"sha256","sect
or_size":512},"type":"reencrypt","key_size":1,"mode":"reencrypt","direction":"
forward","priority":0}},"tokens":{"0":{"type":"localclone","keyslots":["0","1"
],"key":"0f1e2d3c-0000-4000-8000-000000000001","format":"hex","shared":false,"
role":"volume","slot":"","replaces":""}},"segments":{"0":{"type":"crypt","offs
et":"16777216","size":"872415232","iv_tweak":"0","encryption":"aes-xts-plain64
","sector_size":512},"1":{"type":"crypt","offset":"889192448","size":"18454937
6","iv_tweak":"1703936","encryption":"aes-xts-plain64","sector_size":512},"2":
{"type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","encryptio
n":"aes-xts-plain64","sector_size":512,"flags":["backup-previous"]},"3":{"type
":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0","encryption":"ae
s-xts-plain64","sector_size":512,"flags":["backup-final"]}},"digests":{"0":{"t
ype":"pbkdf2","keyslots":["0"],"segments":["1","2"],"hash":"sha256","iteration
s":1000,"salt":"7MTH/u+1lThtwHvMReI1SRLzIZ23jOturj7joTGAUqc=","digest":"s4v8N8
osw19pZuPCGAISIPL106pdgNisBz+z9BictAU="},"1":{"type":"pbkdf2","keyslots":["1"]
,"segments":["0","3"],"hash":"sha256","iterations":1000,"salt":"Btw0d1yKlHFmL6
ERp7blAotcpY0D8W0Lzm2ikZ3YpR8=","digest":"+r/N6C3ztZXm1pSy9MazxTx+3ecG7LY2AxZI
QEHIYI4="},"2":{"type":"pbkdf2","keyslots":["2"],"segments":[],"hash":"sha256"
,"iterations":1000,"salt":"AYFzgepyPF280m/Bl5GNgpN8WHo39KgkO/2bkEp0Pj8=","dige
st":"tl+6a7zlhyHygOhNzFmyS8Rv0W9AkZJ0L4zGr8UnSds="}},"config":{"json_size":"12
288","keyslots_size":"16744448","requirements":{"mandatory":["online-reencrypt
-v2"]}}}'''.split('\n'))


def complete():
    """What a header says whose re-encryption lacks nothing but its end."""
    found = json.loads(STARTED)
    segments = found['segments']
    final, = (number for number, each in segments.items()
              if each.get('flags') == ['backup-final'])
    data, = (number for number, each in segments.items()
             if 'flags' not in each)
    segments[data] = {key: value for key, value in segments[final].items()
                      if key != 'flags'}
    for each in found['digests'].values():
        each['segments'] = [one for one in each['segments'] if one != data] + (
            [data] if final in each['segments'] else [])
    return found


def head(metadata, sequence=7, size=16 << 10):
    """The bytes of both copies of a header."""
    made = b''
    for magic in (luks_binary.FIRST, luks_binary.SECOND):
        binary = bytearray(luks_ending.BINARY)
        luks_binary._BEGIN.pack_into(binary, 0, magic, 2, size, sequence)
        binary[72:78] = b'sha256'
        made += luks_ending._copy(
            bytes(binary), magic, len(made), sequence, bytes(luks_ending.SALT),
            json.dumps(metadata, ensure_ascii=False).encode().ljust(
                size - luks_ending.BINARY, b'\0'))
    return made
