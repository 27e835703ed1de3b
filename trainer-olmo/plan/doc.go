// Package plan says what a configuration amounts to before anything is
// allocated, opened or fetched: parameters, tokens and steps, the learning rate
// along the run, and bytes for each class of tensors. It never touches the
// network, and of the data it looks at the sizes of local files only.
package plan
