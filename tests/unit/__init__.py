"""Tests of one module each; `referees` holds the checks that test_mutations also runs on wrong equations."""
