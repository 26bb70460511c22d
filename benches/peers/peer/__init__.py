"""One file for each peer. A peer is a module with

    TITLE           its name in the table
    REQUIREMENTS    packages of its environment; LAYER, where given, names the environment that it stands on
    PACKAGES        whose versions the table tells
    FORMAT          what it reads; peers that read the same share what `prepare` made
    SLOW            what one object is to it, where objects can be made slow ("" where not)
    prepare(data)   writes what it reads, once; not measured
    batches(data, settings)
                    yields batches for ever, with no seam between epochs where the peer can

and, where it has servers of its own, `serve(data, settings, ready)`: runs them in a process apart, calls `ready(address)`, which
`batches` finds in `settings.address`, and stays. Nothing here is imported outside the peer's environment but by name: imports of
the peer's packages stand inside the functions.
"""
