"""One finding per root cause: `pauses`, `storms` and `carriers` tell who began it; `symptoms` has the rest."""
