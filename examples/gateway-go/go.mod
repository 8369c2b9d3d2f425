module gateway

go 1.19
