package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// eachRow calls f for each row of a CSV file. Lines that start with # are comments.
func eachRow(path string, columns int, f func(row []string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.Comment = '#'
	reader.FieldsPerRecord = columns
	for {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := f(row); err != nil {
			line, _ := reader.FieldPos(0)
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
}

// applyFacts applies the hand-written facts in facts.csv. An empty cell changes nothing, and "-" clears a property. A
// row that matches no field is an error, so that outdated rows are noticed.
func applyFacts(fields []*field, path string) error {
	return eachRow(path, 9, func(row []string) error {
		low, high, err := idRange(row[0])
		if err != nil {
			return err
		}
		touched := 0
		for _, f := range fields {
			if f.id < low || f.id > high {
				continue
			}
			touched++
			for i, target := range []*string{&f.typ, &f.unit, &f.levels, &f.kind, &f.min, &f.max, &f.flags, &f.help} {
				switch value := row[i+1]; value {
				case "":
				case "-":
					*target = ""
				default:
					*target = value
				}
			}
		}
		if touched == 0 {
			return fmt.Errorf("go-dcgm has no field with id %s", row[0])
		}
		return nil
	})
}

// applyNames adds base-unit names that are newer than the header in go-dcgm.
func applyNames(fields []*field, path string) error {
	return eachRow(path, 2, func(row []string) error {
		id, err := strconv.Atoi(row[0])
		if err != nil {
			return err
		}
		for _, f := range fields {
			if f.id == id {
				if f.base != "" {
					return fmt.Errorf("dcgm_fields.h already has the newer name %s for id %d: remove the row", f.base,
						id)
				}
				f.later = row[1]
				return nil
			}
		}
		return fmt.Errorf("go-dcgm has no field with id %d", id)
	})
}

func idRange(s string) (low, high int, err error) {
	first, last, isRange := strings.Cut(s, "-")
	if low, err = strconv.Atoi(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	high, err = strconv.Atoi(last)
	return low, high, err
}
