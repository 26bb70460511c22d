"""One file for each peer. A peer is a module with

    TITLE           its name in the table
    REQUIREMENTS    packages of its environment; LAYER, if given, names the environment that it builds on
    PACKAGES        packages whose versions are in the table
    FORMAT          the format that it reads; peers with the same format share the output of `prepare`
    SLOW            what an object is for it, if objects can be delayed; "" if not
    prepare(data)   writes the data in its format, once; not measured
    batches(data, settings)
                    yields batches for ever, if possible without a pause between epochs

and, if it has its own servers, `serve(data, settings, ready)`, which runs them in a separate process, calls
`ready(address)` and does not return; `batches` finds the address in `settings.address`. Outside the peer's environment
this module is imported only for its names, so imports of the peer's packages are inside the functions.
"""
