module gorgonia.org/cu

go 1.25.0
