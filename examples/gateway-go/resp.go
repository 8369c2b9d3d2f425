package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// push is a message that answers no command.
type push []any

// readValue reads one value of RESP3. An error of Redis is a value of the type error; null is nil.
func readValue(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return nil, fmt.Errorf("the connection has ended: %w", err)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '-':
		return errors.New(text), nil
	case '_':
		return nil, nil
	case '$', '=':
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || size > 1<<20 {
			return nil, fmt.Errorf("the size of a string is %q", text)
		}
		data := make([]byte, size+2)
		_, err = io.ReadFull(r, data)
		return string(data[:size]), err
	case '*', '~', '>', '%':
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 || size > 1<<20 {
			return nil, fmt.Errorf("the size of an array is %q", text)
		}
		if kind == '%' {
			size *= 2
		}
		values := make([]any, size)
		for i := range values {
			if values[i], err = readValue(r); err != nil {
				return nil, err
			}
		}
		if kind == '>' {
			return push(values), nil
		}
		return values, nil
	default: // simple strings, numbers, booleans
		return text, nil
	}
}
