"""New code between, on the embedded engine: `make test-engines` has the others."""

from new_code import check_new_code


def test_new_code_leaves_no_run_of_older_code_behind(open_store):
    open_store.run(lambda: check_new_code(open_store(), "embedded:"))
