package component

// Review is the cost review of a swarm in us-east-1.
func Review(name string, args *Args) (string, error) {
	d, err := resolve(name, args, "us-east-1")
	if err != nil {
		return "", err
	}
	return d.review(name), nil
}
