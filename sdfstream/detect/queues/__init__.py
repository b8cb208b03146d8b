"""Queue and utilisation of each direction of a link (``sdf.derived.hop.v1``).

`hops`, what is said and when; `excess`, delays over normal by seconds; `links`, the directions and who crosses them;
`ports`, what hosts' ports moved; `carried`, what queue pairs carried, link by link.
"""
