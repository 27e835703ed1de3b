package vec

//go:generate ./_gen/generate.sh
