"""Random and hostile inputs, and kills: each file makes one kind, `test_fuzzing` tries them."""


def damaged(rng, content):
    """Return bytes with bits flipped, the end cut off, or a part copied to another place."""
    data = bytearray(content)
    match rng.integers(4):
        case 0:
            del data[rng.integers(len(data)) :]
        case 1:
            start, stop = sorted(rng.integers(len(data), size=2))
            place = rng.integers(len(data))
            data[place:place] = data[start:stop]
        case _:
            for place in rng.integers(len(data), size=rng.integers(1, 9)):
                data[place] = rng.choice([data[place] ^ (1 << rng.integers(8)), 0, 1, 127, 255])
    return bytes(data)
