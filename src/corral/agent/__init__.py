"""The process on a node: joins, beats, keeps workers alive, carries their traffic."""
