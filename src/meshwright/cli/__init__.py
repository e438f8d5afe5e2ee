"""The command `meshwright`: parses words, calls the library, prints results."""
