"""Causes with and without what operators' labels teach: ``sdfstream score detect --labels N``.

`fabric` is the scenario, one a seed; `sightings` runs it and says of each finding what it truly was; `learning` labels
the findings of some seeds and compares the causes of the others; `text` prints that.
"""
