# Sourced: sets browser to a Chromium, or exits with 77, which CTest shows as skipped (LOCKSTEP_CHROMIUM names one).
browser=${LOCKSTEP_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [[ -z $browser ]]; then
  echo "skipped: no chromium found; install the package chromium, or name one in LOCKSTEP_CHROMIUM"
  exit 77
fi
