"""Games: Shapley values, the searches that choose which games to play, and their engine.

`shapley` has exact values of small games, `game` the games themselves, `search` the searches,
`engine` the driver that fills batches from many searches, `targets` the explained outputs, `tree`
the regions of a run with their place and worth, and `theory` the bounds of the paper.
"""
