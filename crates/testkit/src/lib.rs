//! Reference model, differential runner and conformance suites.
