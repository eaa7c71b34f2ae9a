package dashboards

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"
	"testing"
)

// small makes a picture of few colors of one: a page of flat colors and text loses nothing that a
// person sees, and three quarters of its size.
func small(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	// Colors in steps of eight, the most frequent first.
	step := func(c color.Color) color.RGBA {
		r, g, b, _ := c.RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	count := map[color.RGBA]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[step(from.At(x, y))]++
		}
	}
	var colors []color.RGBA
	for c := range count {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.RGBA) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return int(a.R)<<16 + int(a.G)<<8 + int(a.B) - int(b.R)<<16 - int(b.G)<<8 - int(b.B)
	})
	var palette color.Palette
	for _, c := range colors {
		// A color next to one that is there adds nothing.
		if len(palette) == 64 {
			break
		}
		if !slices.ContainsFunc(palette, func(p color.Color) bool { return near(p.(color.RGBA), c) }) {
			palette = append(palette, c)
		}
	}
	index := map[color.RGBA]uint8{}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := step(from.At(x, y))
			i, ok := index[c]
			if !ok {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func near(a, b color.RGBA) bool {
	d := func(x, y uint8) int { return (int(x) - int(y)) * (int(x) - int(y)) }
	limit := 700
	if max(a.R, a.G, a.B) < 56 { // grounds and lines differ by little
		limit = 20
	}
	return d(a.R, b.R)+d(a.G, b.G)+d(a.B, b.B) < limit
}
