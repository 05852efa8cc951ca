"""pgoutput's messages as rows of the change log: whole transactions, in commit order."""
