"""Games: Shapley values, the searches that choose which games to play, and their engine.

- `shapley` computes the exact values of small games; `game` is one game.
- `search` has the searches, and `jobs` one search each with the scores that it waits for.
- `engine` drives many jobs and fills batches from all of them.
- `targets` takes the explained number out of the model's outputs.
- `tree` gives every region of a run its coefficient and its share.
- `theory` has the bounds of the paper.
"""
