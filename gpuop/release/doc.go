// Package release reads what one release of NVIDIA's gpu-operator chart says of itself: its values
// and those of its subcharts, what the templates read, and the fields of its custom resources.
//
// It reads a chart as a folder or as the archive that helm pull writes. The generator of gpuop's
// tables and the option --chart use the same reader.
//
// Nothing is executed and no template is rendered. The package judges nothing.
package release
