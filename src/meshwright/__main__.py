"""`python -m meshwright`."""

from .cli import main

raise SystemExit(main())
