// Package model has the settings that a user gives to the chart, each with the place where it stands, of
// files and of flags, on one release. A value that another program fills in is marked unknown.
//
// The package reads values files and the arguments of --set as Helm does, and judges neither.
package model
