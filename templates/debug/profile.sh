# A login shell sets PATH anew; under envkit-debug it is the image's.
if [ -n "${ENVKIT_PATH:-}" ]; then export PATH="$ENVKIT_PATH"; fi
