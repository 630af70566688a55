"""What a report says, and the tables and pictures made of it. Needs no GPU; measures nothing."""
