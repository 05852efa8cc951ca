"""test_decoding's lines as rows of the change log: whole transactions, in commit order."""
