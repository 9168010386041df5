"""A run folder verified and reported: nothing in it is taken on trust (chapter 12).

    shapes      the form of the manifest and of each record
    inventory   what lies in the folder: the names that are listed, the files
    claims      the folder opened, and how a claim is compared with what is found
    acceptance  the five thresholds that no other mark can make up for
    replaying   steps of the run taken again
    rescoring   losses, evaluations and texts derived again from the weights
    fields      the marked fields of a report, each a function of the records
    reporting   a report filled, and filled again to compare
    checks      all of them in their order: `verify`
"""
