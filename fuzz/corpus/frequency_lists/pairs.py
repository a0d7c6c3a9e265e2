[
[('forward', 1080), ('forward', 1080), ('backward', 1080), ('backward', 1080)],
[('forward', 1080), ('backward', 1080), ('forward', 1080), ('backward', 1080)],
]
# least energy
# iteration time: 0.555494904 s
# energy: 237.42825551999996 J
