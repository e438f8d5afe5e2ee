"""`python -m meshwright`."""

from .cli.main import main

raise SystemExit(main())
