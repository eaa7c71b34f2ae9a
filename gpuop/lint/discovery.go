package lint

// discovery compares a pinned image of Node Feature Discovery with that of the release.
func (in *installation) discovery() {
	s := in.explicit("node-feature-discovery.image.tag")
	if s == nil || s.unknown || s.edit.Drop {
		return
	}
	if made, known := in.table.Operand(in.version, "nfd"); known && s.text() != "" && compareVersions(s.text(), made) < 0 {
		in.pinned(s, made)
	}
}
