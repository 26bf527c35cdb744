"""Asking before something changes: the policy, the rules, the request and its answer."""
