package vec

//go:generate sh -c "cd _gen && GOWORK=off go run . -pkg vec -out ../kernels_amd64.s -stubs ../kernels_amd64.go -dir .."
