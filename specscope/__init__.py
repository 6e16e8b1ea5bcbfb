"""The specscope command line, service, evaluator and reports."""
