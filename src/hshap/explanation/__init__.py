"""The result of a run, and every way to look at it without another model call.

`explanation` is the result, `settings` how it was made. `reading` reads it again at coarser or
stricter settings, `audit` says how far to trust it, `spin` averages several, `storage` keeps them
in files and `display` shows them as text and in notebooks.
"""
